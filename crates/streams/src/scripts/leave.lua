-- Removes a consumer from its group, unless it has pending entries: they would be lost with it.
--
-- ARGV[1]  the group
-- ARGV[2]  the consumer
-- Result   1 removed, 0 it has pending entries
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) > 0 then
  return 0
end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return 1
