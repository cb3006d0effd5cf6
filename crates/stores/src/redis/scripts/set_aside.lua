#!lua flags=allow-oom
-- Makes dead letters of claimed messages whose beginnings scripts can read and whose other parts nobody can.
--
-- KEYS    as in prelude.lua
-- ARGV    id and token, in pairs
-- result  per pair: "d" done, "l" lost
local MAYBE = 16
local answers = {}
for i = FIRST, #ARGV, 2 do
  local id, answer = ARGV[i], 'l'
  local held, packed = call('HGET', claim, id), call('HGET', msg, id)
  local token = open_claim(held)
  if token and token == tonumber(ARGV[i + 1]) then
    local flags = packed and packed:byte(2) or 0
    set_aside_claimed(id, held, packed, floor(flags / MAYBE) % 2)
    answer = 'd'
  end
  answers[#answers + 1] = answer
end
finish(0)
return answers
