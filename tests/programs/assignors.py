"""Which member reads what, before and after one joins."""

import fletchlog as fl

print(fl.assign.range({"t": 3}, {"a": ["t"]}))
print(fl.assign.range({"t": 3}, {"a": ["t"], "b": ["t"]}))
# -> {'a': {'t': [0, 1, 2]}}
# -> {'a': {'t': [0, 1]}, 'b': {'t': [2]}}
