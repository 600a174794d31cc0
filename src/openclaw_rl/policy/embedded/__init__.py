"""The embedded engine: PyTorch, on this machine's CPU or one GPU.

`network` is the model, `decoder` the short way to compute it, `adapter` what training changes, `arena` and
`prefix_cache` its memory, `sampler` the dice, `scheduler` decides who gets the next step, and `engine` is
the face that the gateway sees.
"""
