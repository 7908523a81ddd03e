"""A mistyped path or property is an error, and makes nothing."""

import os

import fletchlog as fl

try:
    fl.Broker("dta/")
except fl.errors.DirectoryError as error:
    print("create=True" in str(error), os.path.exists("dta"))
with fl.Broker.in_memory() as broker:
    try:
        fl.Consumer(broker, {"group.idd": "g"})
    except fl.errors.ConfigError as error:
        print("group.id" in str(error))
# -> True False
# -> True
