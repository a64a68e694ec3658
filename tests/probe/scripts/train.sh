#!/bin/sh
# Goes where the scripts are, says so, and trains: train.sh PYTHON CLOCK
cd "$(dirname "$0")" || exit 1
echo "training in $PWD"
PYTHONPATH=.:$PYTHONPATH "$1" -m package.train "$2"
echo "python ended with $?"
