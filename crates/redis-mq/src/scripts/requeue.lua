-- Pending entries are to be handled again, by anybody, without counting anything.
--
-- ARGV[1]   the group
-- ARGV[2]   the consumer that has them, or '' for whoever has
-- ARGV[3]   ms to wait
-- ARGV[4..] ids
-- Result    how many of them there are
local count, at = 0, now_ms() + tonumber(ARGV[3])
for i = 4, #ARGV do
  local holder = pending_entry(ARGV[1], ARGV[i])
  if holder and (ARGV[2] == '' or holder[2] == ARGV[2]) then
    redis.call('ZADD', KEYS[3], at, ARGV[i])
    count = count + 1
  end
end
return count
