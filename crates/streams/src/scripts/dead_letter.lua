-- Makes a dead letter of an entry, without further attempts.
--
-- ARGV[1] the group    ARGV[2] the consumer that owns it, or '' for any    ARGV[3] the id    ARGV[4] why
-- ARGV[5] attempts to add to those that were counted
-- ARGV[6] 'keep' or 'drop' dead letters    ARGV[7] the most dead letters, or ''
-- Result  {'dead' | 'lost' | 'not_pending' | 'trimmed', attempts}
local group, consumer, id = ARGV[1], ARGV[2], ARGV[3]
local holder, fields = pending_entry(group, id), fields_of(id)
if not holder then
  -- Trimmed while it was in flight, and removed from the pending list by that; or acknowledged.
  return {fields and 'not_pending' or 'trimmed', 0}
end
if consumer ~= '' and holder[2] ~= consumer then
  return {'lost', 0}
end
if not fields then
  settle(group, id)
  return {'trimmed', 0}
end
local failures, crashes = counts_of(id)
local attempts = failures + crashes + tonumber(ARGV[5])
move_to_dlq(group, holder[2], id, fields, attempts, ARGV[4], ARGV[6], ARGV[7])
return {'dead', attempts}
