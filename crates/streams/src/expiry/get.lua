#!lua flags=no-writes
-- Reads a timer.
--
-- KEYS     as in set.lua
-- result   nothing; or value, attempts so far, milliseconds until it is due, 0 if it is
local value = redis.call('HGET', KEYS[2], KEYS[4])
local attempts, due = string.match(redis.call('HGET', KEYS[3], KEYS[4]) or '', '^(%d+) (%d+) ')
if not value or not attempts then return false end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
return {value, tonumber(attempts), math.max(0, tonumber(due) - now)}
