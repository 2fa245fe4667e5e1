import sys

for name in sys.argv[1:]:
    with open(name, encoding="utf-8") as file:
        print(f"共 {len(file.readlines())} 行")
