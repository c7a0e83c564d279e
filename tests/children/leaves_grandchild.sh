# Starts a process that ignores SIGTERM and holds no pipe, says its pid, ends at the end of stdin.
(trap '' TERM; exec sleep 60) </dev/null >/dev/null 2>&1 &
echo $!
cat >/dev/null
