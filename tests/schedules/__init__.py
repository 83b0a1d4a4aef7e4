"""The producer under several threads that take turns, drawn from a seed: order, flush, close, memory.

    .venv/bin/python -m tests.schedules --schedules 100000     resumes where it was ended
    .venv/bin/python -m tests.schedules --seed 7 --trace       one schedule, step by step
    .venv/bin/python -m tests.schedules --faults               how many schedules find each planted fault

turns.py      threads of which one runs at a time, and their pauses inside the producer's code
schedule.py   a producer with little memory, its callers, brokers that fail, and what must hold at the end
faults.py     faults of the producer, as changes of its text
"""
