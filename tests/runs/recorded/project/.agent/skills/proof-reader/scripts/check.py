import re
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    found = re.findall(r"\b(\w+) \1\b", file.read())
print("repeated:", ", ".join(found) or "nothing")
