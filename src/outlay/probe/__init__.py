"""Really training for a while, with the user's script unchanged, to get a `Measurement`.

agent          what goes into the script's own processes: stdlib and torch alone, no outlay
runner         `probe_command`: the command started, watched, stopped
session        the same in the process at hand, for `outlay.inline`
stages         when a probe ends, and what it requests of the processes until then
command        the command's processes, and where its output goes
messages       what agents report: a log for each process
cycles         training steps from optimizer steps
steady_state   where warm-up ends, and how well the mean of the rest is known
steps          step time, samples, waits and pauses of all processes together
sampler        readings of the GPU driver and the system meanwhile
gpu_watch      which GPUs are used; gpu_driver, nvidia and amd read them
system         the machine and its load; processes, the command's share of it
recorded_step  the operations of a step as a profile
pauses         evaluations that no timed step shows
summary        a measurement put together of all that
bottleneck     what holds it back, and what helps
health         its diagnosis: time shares, finding, checks
whole_run      how long the whole run takes, and what it costs
trial          one batch size, run for a few steps
find_batch     the largest batch, by trials in fresh processes
guard          parts of a result that may fail alone
saving         the result on disk, without losing it
"""
