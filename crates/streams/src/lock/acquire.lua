#!lua
-- Acquires a free lock, with a token greater than every one before.
--
-- KEYS[1]  the lock: "<token> <owner>", which expires with its lease
-- KEYS[2]  the last token; it outlives the lock
-- ARGV[1]  the owner: random for every attempt, so that a repeated call has the same reply
-- ARGV[2]  the lease, milliseconds
-- ARGV[3]  how long the last token is kept after its own time, milliseconds
-- result   1 and the token, or 0 and the milliseconds until the lease of its holder ends
local held = redis.call('GET', KEYS[1])
if held then
  local token, owner = string.match(held, '^(%d+) (.*)$')
  if owner == ARGV[1] then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return {1, tonumber(token)}
  end
  return {0, redis.call('PTTL', KEYS[1])}
end
-- Microseconds of this server's clock, so that tokens grow although the last one was lost with a master; and one more than the last, so
-- that they grow although the clock went back.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local token = math.max(now, tonumber(redis.call('GET', KEYS[2]) or '0') + 1)
local text = string.format('%.0f', token)
redis.call('SET', KEYS[1], text .. ' ' .. ARGV[1], 'PX', ARGV[2])
-- Counted from the token, not from now: when it is forgotten, the clock is past it.
redis.call('SET', KEYS[2], text, 'PXAT', string.format('%.0f', math.ceil(token / 1000) + tonumber(ARGV[3])))
return {1, token}
