"""CUDA kernels without a GPU: their PTX, compiled for three architectures, runs on the CPU.

CI has no GPU, and each test of a kernel runs here first. `compiler` makes PTX as a launch loads it,
`translate` and `emulator` run it thread by thread, with checks of memory, races and barriers, and
`device` puts that in CuPy's place for the package's GPU operators. `faulty` has kernels with one
fault each, which the checks must find. ``make gpu`` runs the same tests on a GPU.
"""
