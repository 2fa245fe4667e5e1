#!/bin/sh
echo "nothing to tidy${1:+ in $1}"
