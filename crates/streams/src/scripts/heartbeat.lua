-- Renews the ownership of entries in flight, so that no consumer reclaims them. Reclaimed ones stay with their new owner.
--
-- ARGV[1]   the group
-- ARGV[2]   the consumer
-- ARGV[3..] ids
-- Result    the ids that it no longer owns
local own, lost = {}, {}
for i = 3, #ARGV do
  local holder = pending_entry(ARGV[1], ARGV[i])
  if not holder or holder[2] ~= ARGV[2] then
    lost[#lost + 1] = ARGV[i]
  elseif not redis.call('ZSCORE', KEYS[3], ARGV[i]) then
    -- One that has failed since and waits is left alone: a claim after it was trimmed would remove it from the group unreported.
    own[#own + 1] = ARGV[i]
  end
end
if #own > 0 then
  own[#own + 1] = 'JUSTID'
  redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, unpack(own))
end
return lost
