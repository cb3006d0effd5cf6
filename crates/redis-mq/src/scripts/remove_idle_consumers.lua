-- Takes consumers out of a group that said nothing for long, unless they hold something: their pending entries would be
-- forgotten with them.
--
-- ARGV[1]  the group
-- ARGV[2]  the consumer that asks, which stays
-- ARGV[3]  silent for more than so many ms
-- Result   the names of those that went
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
