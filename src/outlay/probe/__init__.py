"""Really training for a while, with the user's script unchanged, to get a `Measurement`.

agent/      what goes into the script's own processes: stdlib and torch alone, no outlay
records     what the agent writes, one line for each optimizer step
steps       from records to training steps: cycles, pauses, steady state, confidence
sampler     what the driver and the system say meanwhile
finding     what holds it back, and whether it trains properly
live        one moment of a probe, for the live line
finish      the whole run, by what a probe of it saw
batches     batch sizes that were tried, and the knee of their throughput
run         the command started, watched, stopped, and what it gave
"""
