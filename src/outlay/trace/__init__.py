"""One training step, operation by operation, and what it is at any batch size.

tracing          trace a step of the user's: `profile_of`, `trace_step`
target           `path/to/file.py:function`, and changes to the step it names
process, forker, child
                 where a trace runs: who asks for it, who forks, who answers
capture/         the step on fake CUDA tensors; the only part with torch
formulas, traffic, workspace
                 what one operator computes, moves, and takes for itself
batch_scaling    traces at a few batch sizes become polynomials in the batch size
length_scaling   ... and at a few lengths of a sample: polynomials in both
length_profile   a step at any length: its types, and the profile at one length
allocator        what torch's caching allocator makes of a step's allocations
from_recording   the profile of a step that a probe recorded on a real GPU
profile, store   a step at any batch size: its types, and its files
step_report      a step at one batch size, explained line by line
"""
