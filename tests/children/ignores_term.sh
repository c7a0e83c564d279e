# Says its pid, then ignores both the end of stdin and SIGTERM.
trap '' TERM
echo $$
while :; do sleep 60; done
