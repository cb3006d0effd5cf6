#!lua
-- Replays a dead timer: it is due now with no attempts, and leaves the dead timers.
--
-- KEYS     as in dead.lua
-- ARGV[1]  the id of the dead one
-- result   1 done, 0 there is none, -1 a timer of its key was set since
local letter = redis.call('XRANGE', KEYS[4], ARGV[1], ARGV[1])[1]
if not letter then return 0 end
local dead = {}
for i = 1, #letter[2], 2 do dead[letter[2][i]] = letter[2][i + 1] end
if redis.call('HEXISTS', KEYS[3], dead.key) == 1 then return -1 end
local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
redis.call('ZADD', KEYS[1], now, dead.key)
redis.call('HSET', KEYS[2], dead.key, dead.body)
redis.call('HSET', KEYS[3], dead.key, '0 ' .. dead['duly-due'] .. ' -')
redis.call('XDEL', KEYS[4], ARGV[1])
return 1
