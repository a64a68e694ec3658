"""Step time, memory and run time on any GPU. Arithmetic only: values in, values out."""
