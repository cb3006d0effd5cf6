#!lua flags=allow-oom
-- Decides which subscriber acts on the expiry of a key: the first one that reports this occurrence.
--
-- An event has no number, so occurrences are counted. Within one subscription every event is another occurrence, and events of one key
-- arrive in order. The n-th event of a subscription is the n-th occurrence after the subscription began.
--
-- KEYS[1]  the record of this key: n, the occurrences acted on; t, the last token; c<n>, when; s<subscription>, how many of them it has
--          received, the number of the last event, and the reply to it
-- ARGV[1]  the subscription
-- ARGV[2]  when it began, microseconds of this server
-- ARGV[3]  the number of the event within the subscription: a repeated call has the same reply
-- ARGV[4]  how long the record is kept, milliseconds
-- ARGV[5]  how many times of occurrences are kept
-- result   a token to act with, greater than the last; 0 if another acts
local record, own = KEYS[1], 's' .. ARGV[1]
local n = tonumber(redis.call('HGET', record, 'n') or '0')
local position
local before = redis.call('HGET', record, own)
if before then
  local count, number, answer = string.match(before, '^(%d+) (%d+) (%d+)$')
  if number == ARGV[3] then return tonumber(answer) end
  position = tonumber(count)
else
  -- A subscription never receives occurrences from before it began.
  position = n
  while position > 0 do
    local at = redis.call('HGET', record, 'c' .. position)
    if not at or tonumber(at) < tonumber(ARGV[2]) then break end
    position = position - 1
  end
end
position = position + 1
local token = 0
if position > n then
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  token = math.max(now, tonumber(redis.call('HGET', record, 't') or '0') + 1)
  redis.call('HSET', record, 'n', position, 'c' .. position, string.format('%.0f', now), 't', string.format('%.0f', token))
  redis.call('HDEL', record, 'c' .. (position - tonumber(ARGV[5])))
  -- A key that expires every few seconds for ever: those that are so far behind have long ended.
  if redis.call('HLEN', record) > 4 * tonumber(ARGV[5]) then
    local all = redis.call('HGETALL', record)
    for i = 1, #all, 2 do
      local count = all[i]:sub(1, 1) == 's' and tonumber(string.match(all[i + 1], '^%d+'))
      if count and count < position - tonumber(ARGV[5]) then redis.call('HDEL', record, all[i]) end
    end
  end
end
redis.call('HSET', record, own, string.format('%d %s %.0f', position, ARGV[3], token))
redis.call('PEXPIRE', record, ARGV[4])
return token
