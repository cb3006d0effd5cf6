-- Puts a dead letter back into its stream, for the group that gave it up, and takes it out of the dead letters.
--
-- KEYS[1] the stream    KEYS[2] the dead letters
-- ARGV[1] the id of the dead letter    ARGV[2] the group, or '' for every group
-- Result  the id of the new entry, or '' if there is no such dead letter
local letter = redis.call('XRANGE', KEYS[2], ARGV[1], ARGV[1])[1]
if not letter then
  return ''
end
local entry = {}
for i = 1, #letter[2], 2 do
  local name = letter[2][i]
  if string.sub(name, 1, 10) ~= 'duly-dead-' and name ~= 'duly-group' then
    entry[#entry + 1] = name
    entry[#entry + 1] = letter[2][i + 1]
  end
end
if ARGV[2] ~= '' then
  entry[#entry + 1] = 'duly-group'
  entry[#entry + 1] = ARGV[2]
end
if #entry == 0 then
  return ''
end
local id = redis.call('XADD', KEYS[1], '*', unpack(entry))
redis.call('XDEL', KEYS[2], ARGV[1])
return id
