import os, sys


def main():
    print("cwd", os.getcwd(), sys.argv, sys.executable)
