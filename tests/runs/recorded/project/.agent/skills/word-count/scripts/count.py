import sys

for name in sys.argv[1:]:
    with open(name, encoding="utf-8") as file:
        print(len(file.read().split()), "words")
