-- Removes consumers that were idle for long from a group, unless they have pending entries: those would be lost with them.
--
-- ARGV[1]  the group
-- ARGV[2]  the consumer that asks, which stays
-- ARGV[3]  silent for more than so many ms
-- Result   the names of the removed consumers
local removed = {}
for _, reply in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local consumer = {}
  for i = 1, #reply, 2 do
    consumer[reply[i]] = reply[i + 1]
  end
  local is_gone = consumer.name ~= ARGV[2] and consumer.idle > tonumber(ARGV[3])
  if is_gone and #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, consumer.name) == 0 then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer.name)
    removed[#removed + 1] = consumer.name
  end
end
return removed
