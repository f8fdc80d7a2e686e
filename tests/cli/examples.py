"""Runs the commands that documents show."""
import subprocess


def run(command):
    """The exit status of `command` in bash, and what it printed, standard error included."""
    done = subprocess.run(["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300)
    return done.returncode, done.stdout
