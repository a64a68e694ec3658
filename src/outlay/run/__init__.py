"""Really running it: launching on an engine that exists, trials, and guards that save money.

job            what is started: command, set-up, machines, price, limits, rules
engine         what an engine must do, and which there are
shell          commands on this machine or over ssh, as argument lists
run_folder     a run's files on the machine that trains: script, log, status, exit
host_engine    engines `local` and `ssh`: a process of its own on a machine one can log in to
slurm          engine `slurm`: sbatch, here or on a login host
skypilot       engine `skypilot`: a task of SkyPilot's, on a cloud
run_store      what outlay started: one SQLite file in the data folder
launch         from a plan's option to a run that goes on with the laptop closed
bench          trials on several machines, and the plan again with what was measured
rules          when a run is idle, stalled, over budget or late: readings in, verdicts out
activity       what is read of a run: GPUs, processes, log, steps, loss
progress       steps done, when it will end and what it will have cost
supervisor     the loop that looks at a run, and ends it where the rules say so
guard          that loop on the machine that trains
watch          looking on from elsewhere
redaction      what looks like a credential is not shown
"""
