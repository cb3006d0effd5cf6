-- Leadership of an ordered group: one consumer at a time.
--
-- KEYS[1]  the leader
-- ARGV[1]  the consumer
-- ARGV[2]  the lease in ms
-- ARGV[3]  '1' to acquire or renew it, '0' to release it
-- Result   1 this consumer leads, 0 another one or none
local leader = redis.call('GET', KEYS[1])
if leader and leader ~= ARGV[1] then
  return 0
end
if ARGV[3] == '0' then
  redis.call('DEL', KEYS[1])
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
