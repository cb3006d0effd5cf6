#!lua flags=allow-oom
-- Claims what is due, for as long as a lease. Whoever is claimed and not done by then is due again.
--
-- KEYS     as in set.lua, without the key
-- ARGV[1]  how many at most
-- ARGV[2]  the lease, milliseconds
-- ARGV[3]  the name of these claims, which no other has
-- result   milliseconds until the next is due, -1 if there is none; then per claimed one: key, value, its tries with this one, when it was due
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local keys = redis.call('ZRANGE', KEYS[1], '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, ARGV[1])
local answer = {-1}
for _, key in ipairs(keys) do
  local value = redis.call('HGET', KEYS[2], key)
  local tries, due = string.match(redis.call('HGET', KEYS[3], key) or '', '^(%d+) (%d+) ')
  if value and tries then
    redis.call('ZADD', KEYS[1], string.format('%.0f', now + tonumber(ARGV[2])), key)
    redis.call('HSET', KEYS[3], key, string.format('%d %s %s', tries + 1, due, ARGV[3]))
    for _, part in ipairs({key, value, tries + 1, tonumber(due)}) do answer[#answer + 1] = part end
  else
    -- Somebody has taken it apart by hand.
    redis.call('ZREM', KEYS[1], key)
  end
end
local next = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
if next then answer[1] = math.max(0, tonumber(next) - now) end
return answer
