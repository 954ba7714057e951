"""Asks a file system for its size again and again, which its server always answers: stalls.py DIR STOP

Prints, when the file STOP is there, how long each answer took that took longer than LONG, in milliseconds.
"""
import os, sys, time

LONG = 0.02
root, stop = os.open(sys.argv[1], os.O_RDONLY), sys.argv[2]
stalls = []
while not os.path.exists(stop):
    begin = time.monotonic()
    os.fstatvfs(root)
    took = time.monotonic() - begin
    if took > LONG:
        stalls.append(round(took * 1000))
    time.sleep(0.002)
print(*stalls)
