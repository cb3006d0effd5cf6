#!lua flags=allow-oom
-- Cancels a timer and deletes its key, unless a handler has it.
--
-- KEYS     as in set.lua
-- result   its attempts so far, -1 if there is none, -2 if a handler has it
local attempts, _, claim = string.match(redis.call('HGET', KEYS[3], KEYS[4]) or '', '^(%d+) (%d+) (.*)$')
if not attempts then return -1 end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
if claim ~= '-' and tonumber(redis.call('ZSCORE', KEYS[1], KEYS[4]) or '0') > now then return -2 end
redis.call('ZREM', KEYS[1], KEYS[4])
redis.call('HDEL', KEYS[2], KEYS[4])
redis.call('HDEL', KEYS[3], KEYS[4])
redis.call('DEL', KEYS[4])
return tonumber(attempts)
