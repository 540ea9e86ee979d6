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
                 ``If`` and ``Block`` have bodies; ``Barrier``, ``Agree``, ``Copy`` and ``Wait`` are between
                 threads, ``LoadMatrices`` and ``MultiplyMatrices`` are made by a warp together
``matrix_steps`` which products a matrix unit makes, and what the registers of each lane hold then
``scope``        builds bodies: a ``Scope`` is a block that is being written; it gives names once, knows
                 which values it has already, and may be filled in several places at a time
``printer``      CUDA C.  The emulator's printer (``backends/emulator/printer.py``) inserts a check at each
                 access of memory, ``backends/native/codegen/program.py`` writes C++ for the host's compiler
``verifier``     what holds of every kernel: types, scopes, barriers that all threads reach, indices
``listing``      the form above

Matrix units are fed by copies that run beside the arithmetic; a product of tiles is, step by step::

    tile = scope.array(bf16, (rows * 64,), "tile", space="shared", align=16)
    scope.add(Copy(tile.address(to), x.address(at), 16, at < size))   # 16 bytes, zeros where the test fails
    scope.add(Commit())                      # each thread: these copies are a group
    scope.add(Wait(1))                       # all groups of this thread but the last one are there
    scope.barrier()                          # and so are those of the others
    scope.add(LoadMatrices(tuple(a[i] for i in range(4)), tile.address(row * 64 + lane / 16 * 8)))
    scope.add(MultiplyMatrices("m16n8k16.bf16", sums, left, right))

``a`` is a local array of ``unsigned``; registers are its elements at constant places, or at counters of
loops that are written out (``unroll=0``), so that they are registers indeed.  ``sums`` are four of
``float``.  The functions ``pack_bf16(float, float)``, ``pack_f16``, ``pack_pair<T>``, ``first_of_pair<T>``,
``second_of_pair<T>`` and ``nearest_tf32`` of the device library (``uses.call``) fill and read such registers.
All lanes of a warp reach a load or a product together, all threads of the block for all that the verifier
knows.  A tile is not to be copied into before a barrier behind its last load.  ``capability_of`` says which
devices have the steps of a kernel.  The emulator makes a copy at its ``Wait``, and reports any access to its
bytes before that.

Emitters (``codegen/elemental``, ``families``, ``loops``) build nodes and never text; transforms
(``backends/native/codegen/lanes``) go from tree to tree.  A new node needs a row in ``operands_of`` or
``expressions_of``, in the printer, the listing and the verifier; ``tests/kernel_ir`` names what is missing.
"""
