-- Statistics of a group.
--
-- ARGV[1] the group
-- Result  {length of the stream, lag (an upper bound where Redis does not know it), pending, age of the oldest pending in ms or -1,
--          pending and not in flight, consumers, dead letters}
local known = {}
if redis.call('EXISTS', KEYS[1]) == 1 then
  for _, reply in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local group = {}
    for i = 1, #reply, 2 do
      group[reply[i]] = reply[i + 1]
    end
    if group.name == ARGV[1] then
      known = group
    end
  end
end
local dead = redis.call('XLEN', KEYS[4])
local length = redis.call('XLEN', KEYS[1])
if not known.name then
  return {length, length, 0, -1, 0, 0, dead}
end
-- After entries were deleted by id, Redis may not know the lag. Counting would read all of them, so this is an upper bound: all that was
-- added since the last read.
local lag = known.lag
if not lag then
  lag = length
  if #redis.call('XRANGE', KEYS[1], '(' .. known['last-delivered-id'], '+', 'COUNT', 1) == 0 then
    lag = 0
  elseif known['entries-read'] then
    local reply = redis.call('XINFO', 'STREAM', KEYS[1])
    for i = 1, #reply, 2 do
      if reply[i] == 'entries-added' then
        lag = math.min(length, reply[i + 1] - known['entries-read'])
      end
    end
  end
end
local oldest = -1
local summary = redis.call('XPENDING', KEYS[1], ARGV[1])
if summary[2] then
  oldest = math.max(0, now_ms() - tonumber(string.match(summary[2], '^%d+')))
end
return {length, lag, known.pending, oldest, redis.call('ZCARD', KEYS[3]), known.consumers, dead}
