#!lua flags=allow-oom
-- Ends a claim: done, or again later. A claim that was lost, and a timer that was set anew meanwhile, are left alone.
--
-- KEYS     as in set.lua, without the key
-- ARGV[1]  the name of the claim
-- ARGV[2]  the key
-- ARGV[3]  "" if it is done, or milliseconds until it is due again
-- result   1 settled, 0 lost
local tries, due, claim = string.match(redis.call('HGET', KEYS[3], ARGV[2]) or '', '^(%d+) (%d+) (.*)$')
if claim ~= ARGV[1] then return 0 end
if ARGV[3] == '' then
  redis.call('ZREM', KEYS[1], ARGV[2])
  redis.call('HDEL', KEYS[2], ARGV[2])
  redis.call('HDEL', KEYS[3], ARGV[2])
else
  local time = redis.call('TIME')
  local again = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) + tonumber(ARGV[3])
  redis.call('ZADD', KEYS[1], string.format('%.0f', again), ARGV[2])
  redis.call('HSET', KEYS[3], ARGV[2], tries .. ' ' .. due .. ' -')
end
return 1
