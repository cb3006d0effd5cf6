-- Makes pending entries due for any consumer. No attempt counts.
--
-- ARGV[1]   the group
-- ARGV[2]   the consumer that owns them, or '' for any
-- ARGV[3]   ms to wait
-- ARGV[4..] ids
-- Result    how many were pending
local count, at = 0, now_ms() + tonumber(ARGV[3])
for i = 4, #ARGV do
  local holder = pending_entry(ARGV[1], ARGV[i])
  if holder and (ARGV[2] == '' or holder[2] == ARGV[2]) then
    redis.call('ZADD', KEYS[3], at, ARGV[i])
    count = count + 1
  end
end
return count
