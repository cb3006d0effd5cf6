#!lua
-- Sets a key that expires, and its shadow: the timer. One that was there before is replaced.
--
-- KEYS[1]  due: keys by the time of their next attempt, milliseconds
-- KEYS[2]  values by key
-- KEYS[3]  states by key: "<attempts> <due> <claim>", the claim is "-" if there is none
-- KEYS[4]  the key
-- ARGV[1]  the value
-- ARGV[2]  until it expires, milliseconds
-- Another kind of value, such as a stream, would be lost.
local kind = redis.call('TYPE', KEYS[4]).ok
if kind ~= 'none' and kind ~= 'string' then
  return redis.error_reply('WRONGTYPE the key of a timer holds a ' .. kind)
end
local time = redis.call('TIME')
-- Rounded up: never early.
local due = tonumber(time[1]) * 1000 + math.ceil(tonumber(time[2]) / 1000) + tonumber(ARGV[2])
local text = string.format('%.0f', due)
redis.call('ZADD', KEYS[1], text, KEYS[4])
redis.call('HSET', KEYS[2], KEYS[4], ARGV[1])
redis.call('HSET', KEYS[3], KEYS[4], '0 ' .. text .. ' -')
redis.call('SET', KEYS[4], ARGV[1], 'PX', ARGV[2])
return 1
