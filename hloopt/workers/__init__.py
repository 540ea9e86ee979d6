"""Independent work in processes of its own: on this machine, or on others by dask.

A task (``records.py``) is a key and JSON values; what is done with it is named by data, too: a row of the table
in ``serving.py``.  A worker (``process.py``) is a child process that answers one task at a time, a JSON line
each, within a time and a memory (``serving.py`` is its side): a crash, a loop without end or a module that is
too large is the answer to one task, which it names.  ``pool.py`` spreads tasks over workers of this machine,
``on_dask.py`` over those of a cluster.  ``row_file.py`` keeps what was answered, so that a run that was stopped
goes on.  Modules travel as text, never as pickled objects.
"""
