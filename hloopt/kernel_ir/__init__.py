"""The kernel IR: a small typed tree between the choice of a kernel and its text for a device.

A kernel is a ``Function``: parameters (arrays in global memory, numbers), and a body of statements over
expressions.  All nodes are frozen; equal nodes are equal values.  As ``hloopt kernels FILE --ir`` lists one::

    kernel hlo_multiply_fusion (128 threads, index int)
      global x: float[1000] reads alone
      global result: float[1000] writes alone
      let block_x: int = (int)blockIdx.x
      let thread_x: int = (int)threadIdx.x
      let i: int = block_x * 128 + thread_x
      if i >= 1000
        return
      let param_0: float = x[i]
      let m: float = param_0 * param_0
      store result[i] = m

``expressions``  values: variables, numbers, indices (``analysis/index.py``), C's operators, calls, structs,
                 elements of memory and where they lie.  A node has its type (``types``)
``statements``   ``Let`` and ``Declare`` make names; ``Set`` writes a variable or memory; ``For``, ``While``,
                 ``If`` and ``Block`` have bodies; ``Barrier``, ``Copy`` and ``Wait`` are between threads
``scope``        builds bodies: a ``Scope`` is a block that is being written; it gives names once, knows
                 which values it has already, and may be filled in several places at a time
``printer``      CUDA C.  The emulator's printer (``backends/emulator/printer.py``) inserts a check at each
                 access of memory, ``backends/native/codegen/program.py`` writes C++ for the host's compiler
``verifier``     what holds of every kernel: types, scopes, barriers that all threads reach, indices
``listing``      the form above

Emitters (``codegen/elemental``, ``families``, ``loops``) build nodes and never text; transforms
(``backends/native/codegen/lanes``) go from tree to tree.  A new node needs a row in ``operands_of`` or
``expressions_of``, in the printer, the listing and the verifier; ``tests/kernel_ir`` names what is missing.
"""
