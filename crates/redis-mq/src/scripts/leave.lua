-- Takes a consumer out of its group, unless it holds something: its pending entries would be forgotten with it.
--
-- ARGV[1]  the group
-- ARGV[2]  the consumer
-- Result   1 gone, 0 holds something
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) > 0 then
  return 0
end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return 1
