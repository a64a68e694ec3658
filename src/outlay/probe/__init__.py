"""Really training for a while, with the user's script unchanged, to get a `Measurement`.

agent       what goes into the script's own processes: stdlib and torch alone, no outlay
records     what the agent tells of an optimizer step; listen reads it, table keeps it
steps       from records to training steps: cycles, pauses, steady state, confidence
sampler     what the GPU's driver and the system say meanwhile
course      when enough was seen, and what to ask for next
run         the command started, watched, stopped
assemble    a measurement of all that; judge says what holds it back
find_batch  the largest batch, by trials in fresh processes
session     the same in the process at hand, for `outlay.inline`; together, where it has ranks
"""
