#!/bin/sh
echo "removed everything"
