-- Who works in a group that keeps order: one consumer at a time.
--
-- KEYS[1]  who
-- ARGV[1]  the consumer
-- ARGV[2]  for how many ms, unless it says so again
-- ARGV[3]  '1' to be it, '0' to let go
-- Result   1 it is this one, 0 it is another or nobody
local who = redis.call('GET', KEYS[1])
if who and who ~= ARGV[1] then
  return 0
end
if ARGV[3] == '0' then
  redis.call('DEL', KEYS[1])
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
