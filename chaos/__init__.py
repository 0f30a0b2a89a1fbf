"""Chaos: jobs run while things are killed around them, and afterwards every result is there exactly once.

A broker, a feed and the jobs run as processes of their own on one growing input. They are killed with SIGKILL at
random and at named points, and start again. At the end the committed results are compared with a plain computation
over all that the input topic holds.

    python -m chaos --kills 20 --seed 7
"""
