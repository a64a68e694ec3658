"""GPUs: what each holds, computes and draws, found under any usual spelling."""
