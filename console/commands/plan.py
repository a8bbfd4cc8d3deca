"""`tunedeck plan`, as the command line finds it."""

from console.plan_command import add_arguments as add_arguments
from console.plan_command import run as run
