-- Acknowledges entries.
--
-- ARGV[1]   the group
-- ARGV[2..] ids
-- Result    how many were pending
local done = redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, 2))
if redis.call('EXISTS', KEYS[2], KEYS[3]) > 0 then
  redis.call('ZREM', KEYS[3], unpack(ARGV, 2))
  for i = 2, #ARGV do
    redis.call('HDEL', KEYS[2], ARGV[i], ARGV[i] .. '!', ARGV[i] .. '@', ARGV[i] .. '?')
  end
end
return done
