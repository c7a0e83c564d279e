# Writes its second argument to stderr and exits with its first.
printf '%s\n' "$2" >&2
exit "$1"
