-- Removes idle consumers from a group, unless they have pending entries: they would be lost with them.
--
-- ARGV[1]  the group
-- ARGV[2]  the consumer that asks, which stays
-- ARGV[3]  the idle time in ms
-- Result   the names of the removed consumers
local removed = {}
for _, reply in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local consumer = {}
  for i = 1, #reply, 2 do
    consumer[reply[i]] = reply[i + 1]
  end
  local is_idle = consumer.name ~= ARGV[2] and consumer.idle > tonumber(ARGV[3])
  if is_idle and #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, consumer.name) == 0 then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer.name)
    removed[#removed + 1] = consumer.name
  end
end
return removed
