-- This consumer still works on these: nobody takes them over. Those that somebody took over already stay with them.
--
-- ARGV[1]   the group
-- ARGV[2]   the consumer
-- ARGV[3..] ids
-- Result    the ids that are no longer its own
local mine, lost = {}, {}
for i = 3, #ARGV do
  local holder = pending_entry(ARGV[1], ARGV[i])
  if not holder or holder[2] ~= ARGV[2] then
    lost[#lost + 1] = ARGV[i]
  elseif not redis.call('ZSCORE', KEYS[3], ARGV[i]) then
    -- One that has failed since and waits is left alone: claimed after it was trimmed away, it would be out of the group and
    -- nobody be told.
    mine[#mine + 1] = ARGV[i]
  end
end
if #mine > 0 then
  mine[#mine + 1] = 'JUSTID'
  redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, unpack(mine))
end
return lost
