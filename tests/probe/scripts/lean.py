"""The plain loop with an optimizer that is imported at once; words as of plain.py."""

import own_optimizer
import plain


def sgd(parameters):
    return own_optimizer.PlainSGD(parameters, lr=1e-6)


if __name__ == "__main__":
    plain.main(sgd)
    print("trained to the end")
